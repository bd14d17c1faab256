"""Which tokens are recognized by their form, and which names mark a value as a secret? Data only.

The token forms follow the rules of gitleaks (config/gitleaks.toml, 2026-07) and the plugins of detect-secrets 1.5.
`source` names the rule or the vendor's page. Samples are templates, so that no scanner reports them as leaked keys:
`{34}` means 34 letters and digits, `{16:A}` capital letters and digits, `{12:9}` digits, `{40:f}` hexadecimal digits.
"""

from __future__ import annotations

from typing import NamedTuple


class Form(NamedTuple):
    """A token that is recognized by its form: it starts with one of `begins`, and `pattern` matches all of it."""

    name: str
    source: str
    begins: tuple[str, ...]
    pattern: str  # every repetition is bounded by what follows it, so matching stays linear
    sample: str
    inside: bool = False  # also recognized after a letter or digit, because the form is unique
    lead: str = ""  # a pattern that must precede the start, and is part of the token
    not_behind: str = ""  # characters, besides letters and digits, after which no token starts


# fmt: off
FORMS: tuple[Form, ...] = (
    Form("Hugging Face", "gitleaks huggingface-access-token", ("hf_",), r"hf_[A-Za-z0-9]{16,}", "hf_{34}"),
    Form(
        "Hugging Face organization", "gitleaks huggingface-organization-api-token", ("api_org_",),
        r"api_org_[A-Za-z0-9]{30,}", "api_org_{34}",
    ),
    Form(
        "OpenAI, Anthropic, DeepSeek, OpenRouter", "gitleaks openai-api-key, anthropic-api-key", ("sk-",),
        r"sk-[A-Za-z0-9_-]{16,}", "sk-ant-api03-{93}AA",
    ),
    Form("GitHub", "gitleaks github-pat, github-oauth, github-app-token, github-refresh-token",
         ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{20,}", "ghp_{36}"),
    Form("GitHub fine-grained", "gitleaks github-fine-grained-pat", ("github_pat_",), r"github_pat_\w{20,}",
         "github_pat_{82}", True),
    Form(
        "GitLab", "gitleaks gitlab-*", ("glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glsoat-", "gloas-", "glagent-",
                                       "glimt-", "glffct-", "glcbt-"),
        r"gl[a-z]{2,5}-[\w.-]{16,}", "glpat-{20}",
    ),
    Form("GitLab runner registration", "gitleaks gitlab-rrt", ("GR1348941",), r"GR1348941[\w-]{20}", "GR1348941{20}"),
    Form("AWS access key", "gitleaks aws-access-token", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T"),
         r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])", "AKIA{16:A}"),
    Form("AWS Bedrock", "gitleaks aws-amazon-bedrock-api-key-*", ("ABSK", "bedrock-api-key-"),
         r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/=]{40,}", "ABSK{110}"),
    Form("Google API", "gitleaks gcp-api-key", ("AIza",), r"AIza[\w-]{35}", "AIza{35}"),
    Form("Google OAuth client", "https://cloud.google.com/docs/authentication/api-keys", ("GOCSPX-",),
         r"GOCSPX-[\w-]{20,}", "GOCSPX-{28}"),
    Form("Google OAuth access", "https://developers.google.com/identity/protocols/oauth2", ("ya29.",),
         r"ya29\.[\w-]{20,}", "ya29.{60}"),
    Form("Slack", "gitleaks slack-*, detect-secrets SlackDetector", ("xoxa-", "xoxb-", "xoxe-", "xoxe.", "xoxo-",
                                                                        "xoxp-", "xoxr-", "xoxs-"),
         r"xox[abeoprs][-.][\w.-]{10,}", "xoxb-{12:9}-{12:9}-{24}"),
    Form("Slack app", "gitleaks slack-app-token", ("xapp-",), r"xapp-\d-[\w-]{16,}", "xapp-1-A{10:A}-{13:9}-{64:f}"),
    Form("Slack webhook", "gitleaks slack-webhook-url", ("hooks.slack.com/",),
         r"hooks\.slack\.com/[a-z]{4,16}/[\w+/-]{20,}", "hooks.slack.com/services/T{9:A}/B{9:A}/{24}", True),
    Form("Teams webhook", "gitleaks microsoft-teams-webhook", ("webhook.office.com/",),
         r"webhook\.office\.com/webhookb?2?/[\w@/-]{36,}",
         "webhook.office.com/webhookb2/{36:f}@{36:f}/IncomingWebhook/{32:f}/{36:f}", True),
    Form("Discord webhook", "https://discord.com/developers/docs/resources/webhook",
         ("discord.com/api/webhooks/", "discordapp.com/api/webhooks/"),
         r"discord(?:app)?\.com/api/webhooks/\d{10,}/[\w-]{20,}", "discord.com/api/webhooks/{18:9}/{68}", True),
    Form("Stripe", "gitleaks stripe-access-token", ("sk_test_", "sk_live_", "sk_prod_", "rk_test_", "rk_live_",
                                                    "rk_prod_"),
         r"[sr]k_(?:test|live|prod)_[A-Za-z0-9]{10,}", "sk_live_{24}"),
    Form("Stripe webhook", "https://docs.stripe.com/webhooks", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{20,}", "whsec_{32}"),
    Form("npm", "gitleaks npm-access-token", ("npm_",), r"npm_[A-Za-z0-9]{36}", "npm_{36}"),
    Form("PyPI", "gitleaks pypi-upload-token", ("pypi-AgE",), r"pypi-AgE[\w-]{40,}", "pypi-AgEIcHlwaS5vcmc{60}"),
    Form("RubyGems", "gitleaks rubygems-api-token", ("rubygems_",), r"rubygems_[a-f0-9]{48}", "rubygems_{48:f}"),
    Form("Docker Hub", "https://docs.docker.com/security/access-tokens/", ("dckr_pat_", "dckr_oat_"),
         r"dckr_[po]at_[\w-]{20,}", "dckr_pat_{27}"),
    Form("SendGrid", "gitleaks sendgrid-api-token", ("SG.",), r"SG\.[\w-]{16,32}\.[\w-]{16,64}", "SG.{22}.{43}"),
    Form("Sendinblue", "gitleaks sendinblue-api-token", ("xkeysib-",), r"xkeysib-[a-f0-9]{64}-\w{16}",
         "xkeysib-{64:f}-{16}"),
    Form("Twilio", "gitleaks twilio-api-key", ("SK",), r"SK[0-9a-fA-F]{32}(?![0-9a-zA-Z])", "SK{32:f}"),
    Form("Mailgun", "gitleaks mailgun-private-api-token", ("key-",), r"key-[a-f0-9]{32}(?![0-9a-zA-Z])", "key-{32:f}",
         not_behind="-"),
    Form("Databricks", "gitleaks databricks-api-token", ("dapi",), r"dapi[a-f0-9]{32}(?:-\d)?", "dapi{32:f}"),
    Form("DigitalOcean", "gitleaks digitalocean-*", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[a-f0-9]{64}",
         "dop_v1_{64:f}"),
    Form("Vault", "gitleaks vault-service-token, vault-batch-token", ("hvs.", "hvb."), r"hv[sb]\.[\w-]{20,}",
         "hvs.{95}"),
    Form("Terraform Cloud", "gitleaks hashicorp-tf-api-token", (".atlasv1.",), r"\.atlasv1\.[\w=-]{40,}",
         "{14}.atlasv1.{64}", True, r"[A-Za-z0-9]{14}"),
    Form("Alibaba Cloud", "gitleaks alibaba-access-key-id", ("LTAI",), r"LTAI[A-Za-z0-9]{16,24}(?![A-Za-z0-9])",
         "LTAI{20}"),
    Form("Tencent Cloud", "https://cloud.tencent.com/document/product/598/40488", ("AKID",),
         r"AKID[A-Za-z0-9]{28,36}(?![A-Za-z0-9])", "AKID{32}"),
    Form("JSON web token", "gitleaks jwt", ("eyJ",), r"eyJ[\w-]{10,4000}\.[\w-]{10,8000}(?:\.[\w-]{5,2000})?",
         "eyJhbGciOiJIUzI1NiJ9.eyJ{30}.{43}", not_behind="-"),
    Form("Replicate", "https://replicate.com/docs/reference/http", ("r8_",), r"r8_[A-Za-z0-9]{30,}", "r8_{37}"),
    Form("Groq", "https://console.groq.com/docs/quickstart", ("gsk_",), r"gsk_[A-Za-z0-9]{40,}", "gsk_{52}"),
    Form("Perplexity", "gitleaks perplexity-api-key", ("pplx-",), r"pplx-[A-Za-z0-9]{40,}", "pplx-{48}"),
    Form("xAI", "https://docs.x.ai/docs/overview", ("xai-",), r"xai-[A-Za-z0-9]{60,}", "xai-{80}"),
    Form("NVIDIA", "https://docs.nvidia.com/ngc/latest/ngc-user-guide.html", ("nvapi-",), r"nvapi-[\w-]{40,}",
         "nvapi-{64}"),
    Form("Weights & Biases", "https://docs.wandb.ai/support/find_api_key", ("wandb_v1_",), r"wandb_v1_[\w-]{20,}",
         "wandb_v1_{77}"),
    Form("LangSmith", "https://docs.smith.langchain.com", ("lsv2_",), r"lsv2_[a-z]{2}_[a-f0-9]{32}_[a-f0-9]{10}",
         "lsv2_pt_{32:f}_{10:f}"),
    Form("Pinecone", "https://docs.pinecone.io/guides/projects/manage-api-keys", ("pcsk_",), r"pcsk_\w{40,}",
         "pcsk_{6}_{63}"),
    Form("Tavily", "https://docs.tavily.com", ("tvly-",), r"tvly-[A-Za-z0-9-]{20,}", "tvly-{32}"),
    Form("Azure AD client secret", "gitleaks azure-ad-client-secret", ("Q~",), r"Q~[\w~.-]{31,34}", "{3}8Q~{34}",
         True, r"[\w~.]{3}\d"),
    Form("Shopify", "gitleaks shopify-*", ("shpat_", "shpca_", "shppa_", "shpss_"),
         r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", "shpat_{32:f}"),
    Form("Square", "gitleaks square-access-token, detect-secrets SquareOAuthDetector", ("sq0atp-", "sq0csp-"),
         r"sq0[ac][ts]p-[\w-]{22,60}", "sq0atp-{22}"),
    Form("Grafana", "gitleaks grafana-*", ("glc_", "glsa_"), r"gl(?:c|sa)_[A-Za-z0-9+/=]{32,}(?:_[A-Fa-f0-9]{8})?",
         "glsa_{32}_{8:f}"),
    Form("Linear", "gitleaks linear-api-key", ("lin_api_",), r"lin_api_[A-Za-z0-9]{40}", "lin_api_{40}"),
    Form("Notion", "gitleaks notion-api-token", ("ntn_",), r"ntn_[0-9]{11}[A-Za-z0-9]{35}", "ntn_{11:9}{35}"),
    Form("Postman", "gitleaks postman-api-token", ("PMAK-",), r"PMAK-[a-fA-F0-9]{24}-[a-fA-F0-9]{34}",
         "PMAK-{24:f}-{34:f}"),
    Form("Pulumi", "gitleaks pulumi-api-token", ("pul-",), r"pul-[a-f0-9]{40}", "pul-{40:f}"),
    Form("Prefect", "gitleaks prefect-api-token", ("pnu_",), r"pnu_[A-Za-z0-9]{36}", "pnu_{36}"),
    Form("Doppler", "gitleaks doppler-api-token", ("dp.pt.",), r"dp\.pt\.[A-Za-z0-9]{43}", "dp.pt.{43}"),
    Form("Dynatrace", "gitleaks dynatrace-api-token", ("dt0c01.",), r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}",
         "dt0c01.{24}.{64}"),
    Form("Fly.io", "gitleaks flyio-access-token", ("fo1_", "fm1a_", "fm1r_", "fm2_"),
         r"f(?:o1|m1[ar]|m2)_[\w+/=-]{43,}", "fo1_{43}"),
    Form("Airtable", "gitleaks airtable-personnal-access-token", ("pat",), r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}",
         "pat{14}.{64:f}"),
    Form("Heroku", "gitleaks heroku-api-key-v2", ("HRKU-",), r"HRKU-[\w-]{36,}", "HRKU-AA{58}"),
    Form("Sentry", "gitleaks sentry-org-token, sentry-user-token", ("sntrys_", "sntryu_"), r"sntry[su]_[\w+/=-]{40,}",
         "sntryu_{64:f}"),
    Form("PlanetScale", "gitleaks planetscale-*", ("pscale_tkn_", "pscale_oauth_", "pscale_pw_"),
         r"pscale_(?:tkn|oauth|pw)_[\w=.-]{32,64}", "pscale_tkn_{43}"),
    Form("Artifactory", "gitleaks artifactory-api-key, artifactory-reference-token", ("AKCp", "cmVmd"),
         r"(?:AKCp[A-Za-z0-9]{69}|cmVmd[A-Za-z0-9]{59})", "AKCp{69}"),
    Form("1Password", "gitleaks 1password-secret-key", ("A3-",), r"A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}(?:-[A-Z0-9]{5}){3,4}",
         "A3-{6:A}-{11:A}-{5:A}-{5:A}-{5:A}"),
    Form("1Password service account", "gitleaks 1password-service-account-token", ("ops_eyJ",),
         r"ops_eyJ[A-Za-z0-9+/=]{40,}", "ops_eyJ{260}"),
    Form("age", "gitleaks age-secret-key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
         "AGE-SECRET-KEY-1{58:A}"),
    Form("OpenShift", "gitleaks openshift-user-token", ("sha256~",), r"sha256~[\w-]{43}", "sha256~{43}"),
    Form("Infracost", "gitleaks infracost-api-token", ("ico-",), r"ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])", "ico-{32}",
         not_behind="-"),
    Form("Sourcegraph", "gitleaks sourcegraph-access-token", ("sgp_",),
         r"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}", "sgp_{40:f}"),
    Form("New Relic", "gitleaks new-relic-user-api-key", ("NRAK-", "NRII-"), r"NR(?:AK|II)-[\w-]{20,}", "NRAK-{27:A}"),
    Form("Atlassian", "gitleaks atlassian-api-token", ("ATATT3", "ATCTT3", "ATBB"), r"AT(?:[AC]TT3|BB)[\w=-]{28,}",
         "ATATT3{186}"),
    Form("EasyPost", "gitleaks easypost-api-token", ("EZAK", "EZTK"), r"EZ[AT]K[A-Za-z0-9]{54}", "EZAK{54}"),
    Form("Mailchimp", "detect-secrets MailchimpDetector", ("-us",), r"-us\d{1,2}(?!\d)", "{32:f}-us12", True,
         r"[0-9a-f]{32}"),
    Form("Telegram bot", "detect-secrets TelegramBotTokenDetector", (":AA",), r":AA[\w-]{33}(?![\w-])",
         "{10:9}:AA{33}", True, r"\d{8,10}"),
)
# fmt: on

# -- names ----------------------------------------------------------------------------------------------------------

# fmt: off
# A name with one of these words is a secret, unless its final word is in ABOUT.
SECRET_WORDS = frozenset({
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "credential", "credentials",
    "creds", "apikey", "passwords", "htpasswd", "authorization", "bearer", "jwt",
})
# fmt: on
# The same as the end of a longer word. Names like --apitoken are handled below, with the tokens.
SECRET_ENDS = ("password", "passwd", "passphrase", "passcode", "secret", "apikey", "credentials", "userpwd")
# fmt: off
# The final word of a name that refers to a secret but is not one: password_file, token_ids, max_password_length.
ABOUT = frozenset({
    "file", "files", "path", "paths", "dir", "folder", "name", "names", "id", "ids", "url", "uri", "type", "types",
    "method", "mode", "env", "var", "variable", "len", "length", "size", "count", "counts", "policy", "provider",
    "manager", "backend", "enabled", "required", "prompt", "index", "idx", "num", "embedding", "embeddings", "dim",
    "map", "version", "expires", "expiry", "ttl", "scope", "error", "class", "module", "field", "fields", "column",
    "header",
})
# Words before `token` that make it a machine-learning term: --pad_token, --placeholder_token.
NO_TOKEN = frozenset({
    "pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "image", "audio", "video", "stop", "start", "end",
    "begin", "per", "prompt", "next", "new", "first", "last", "each", "time", "max", "min", "num", "n", "total",
    "system", "user", "assistant", "tool", "think", "boi", "eoi", "blank", "decoder", "encoder", "fim", "prefix",
    "suffix", "middle", "in", "out", "input", "output", "generated", "target", "source", "bad", "sample", "extra",
    "additional", "word", "text", "trigger", "placeholder", "instance", "class", "initializer", "separator", "turn",
    "reserved", "unused", "delimiter", "newline", "space", "language", "lang", "response", "tgt", "src", "modality",
    "point", "dist", "distillation", "mean", "register", "query", "latent", "vision", "patch", "global", "forced",
    "current", "previous", "prev", "this", "unknown", "padding", "unexpected", "invalid", "beginning", "of", "eot",
    "eom", "eod", "role", "speaker", "speech", "timestamp", "control", "concept", "subject", "style",
})
# Words before `token`, `tokens`, `key`, `keys` and `pat` that make it a credential.
CREDENTIAL_OF = frozenset({
    "api", "access", "private", "secret", "auth", "encryption", "account", "service", "ssh", "wandb", "hf",
    "openai", "comet", "neptune", "aws", "azure", "license", "signing", "session", "master", "root", "admin",
    "client", "consumer", "app", "application", "deploy", "ssl", "tls", "rsa", "dsa", "pem", "pgp", "gpg", "hmac",
    "storage", "subscription", "shared", "sas", "bot", "webhook", "cohere", "anthropic", "mistral", "together",
    "replicate", "google", "gemini", "github", "gitlab", "kaggle", "clearml", "mlflow", "swanlab", "pinecone",
    "langchain", "langsmith", "tavily", "serper", "nvidia", "ngc", "datadog", "dd", "sentry", "sendgrid", "twilio",
    "stripe", "slack", "mailgun", "algolia", "relic", "grafana", "databricks", "snowflake", "db", "database",
    "redis", "mongo", "minio", "s", "r", "gcs", "gcp", "oss", "cos", "dashscope", "deepseek", "modelscope",
    "runpod", "vast", "modal", "roboflow", "ultralytics", "labelbox", "voyage", "groq", "fireworks", "perplexity",
    "xai", "zhipu", "moonshot", "qwen", "hub", "huggingface", "refresh", "bearer", "oauth", "npm", "pypi", "docker",
    "registry", "vault", "consul", "bedrock", "telegram", "discord", "notion", "linear", "jira", "atlassian",
    "sonar", "snyk", "codecov", "heroku", "fly", "digitalocean", "cloudflare", "fastly", "netlify", "vercel",
    "supabase", "firebase", "pulumi", "prefect", "dagster", "airflow", "ray", "determined", "lightning", "aim",
    "dvc", "host", "user", "login", "priv", "ecdsa", "crypt",
})
# Words before `pass` that make it a technical term: forward_pass.
NO_PASS = frozenset({
    "forward", "backward", "bwd", "fwd", "first", "second", "third", "last", "single", "multi", "one", "two", "per",
    "each", "all", "by", "low", "high", "band", "test", "tests", "full", "encoder", "decoder", "vae", "compile",
    "optimization", "fusion", "num", "n", "every", "this", "next", "prev", "optimizer", "graph", "inductor", "fx",
    "did", "not", "will", "must", "checks", "train", "eval", "validation", "inference", "warmup", "extra", "skip",
    "use", "no",
})
PASS_OF = frozenset({
    "db", "user", "my", "root", "admin", "sudo", "smtp", "mail", "email", "ftp", "http", "proxy", "ldap", "login",
    "mysql", "pg", "redis", "mongo", "ssh", "key", "vnc", "registry", "docker",
})
# fmt: on
# Values that are never a secret, whatever their name.
NO_VALUES = frozenset(
    {"none", "null", "true", "false", "yes", "no", "on", "off", "auto", "default", "nan", "~", "unset"}
)
