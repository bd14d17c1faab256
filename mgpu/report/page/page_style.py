"""The style of the page: light and dark, any width from a phone up, and print. No font or picture is loaded."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = """
--paper:#fbfbfa;--card:#fff;--ink:#17191c;--soft:#5b6168;--faint:#8a9097;--rule:#e2e4e6;--well:#f3f4f5;
--ok:#1a7f37;--warn:#9a6700;--fail:#cf222e;--unknown:#8250df;--ok-b:#dafbe1;--warn-b:#fff4d2;--fail-b:#ffebe9;
--unknown-b:#f3ecff;--blue:#0969da;--nv:#4c8a00;--near:#0969da;--mid:#6e7781;--far:#bc4c00;
--rest:#a8c7f0;--loader:#e3a008;--wait:#d1485a;--optimizer:#7c6ad6;--saving:#2b9d8f;--idle:#d0d4d9;
"""
_DARK: Final = """
--paper:#0e1013;--card:#16191d;--ink:#e8eaed;--soft:#a3abb3;--faint:#7d858d;--rule:#2a2f35;--well:#1d2126;
--ok:#4ac26b;--warn:#e3b341;--fail:#ff7b72;--unknown:#bc8cff;--ok-b:#12261a;--warn-b:#2b230e;--fail-b:#2f1517;
--unknown-b:#231a33;--blue:#6cb6ff;--nv:#8ccf3f;--near:#6cb6ff;--mid:#8b949e;--far:#f0883e;
--rest:#33527c;--loader:#d4a017;--wait:#e5616f;--optimizer:#9a8cf0;--saving:#3dbfae;--idle:#363c43;
"""

_PAGE: Final = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
main,header.top,footer{max-width:1080px;margin:0 auto;padding:0 20px}
header.top{padding-top:18px}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.875em}
a{color:var(--blue);text-decoration:none}a:hover{text-decoration:underline}
h2{font-size:1.15rem;margin:2.2rem 0 .7rem;letter-spacing:-.01em}
h3{font-size:.95rem;margin:1.1rem 0 .4rem}
p{margin:.4rem 0}
.brand{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline;color:var(--soft);font-size:.85rem}
.brand b{color:var(--ink);font-size:1rem;letter-spacing:-.02em}
.verdict{margin:12px 0 0;padding:16px 20px;border-radius:10px;border:1px solid var(--rule);border-left-width:6px;
background:var(--card)}
.verdict .word{font-size:1.5rem;font-weight:700;letter-spacing:-.01em;line-height:1.2;display:block}
.verdict .text{font-size:1.05rem;margin:.35rem 0 0}
.verdict .first{margin-top:.7rem;padding-top:.7rem;border-top:1px solid var(--rule)}
.light-ok{border-left-color:var(--ok)}.light-ok .word{color:var(--ok)}
.light-warn{border-left-color:var(--warn)}.light-warn .word{color:var(--warn)}
.light-fail{border-left-color:var(--fail)}.light-fail .word{color:var(--fail)}
.light-unknown{border-left-color:var(--unknown)}.light-unknown .word{color:var(--unknown)}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin:12px 0 0;font-size:.9rem}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 18px;margin:0 0 12px}
.card.fail{border-left:4px solid var(--fail)}.card.warn{border-left:4px solid var(--warn)}
.card.crash{border-left:4px solid var(--unknown)}
.card h3{margin:0 0 .4rem;font-size:1rem;line-height:1.35}
.tag{display:inline-block;font-size:.72rem;font-weight:700;letter-spacing:.04em;padding:1px 7px;border-radius:20px;
text-transform:uppercase;vertical-align:2px;margin-right:8px;background:var(--well);color:var(--soft)}
.tag.fail{background:var(--fail-b);color:var(--fail)}.tag.warn{background:var(--warn-b);color:var(--warn)}
.tag.ok{background:var(--ok-b);color:var(--ok)}.tag.crash,.tag.unknown{background:var(--unknown-b);color:var(--unknown)}
.meta{color:var(--soft);font-size:.85rem}
dl.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 14px;margin:.5rem 0;font-size:.9rem}
dl.facts dt{color:var(--soft)}dl.facts dd{margin:0}
.fix{margin:.7rem 0 0}.fix b{margin-right:.4em}
pre{margin:.4rem 0;padding:9px 12px;background:var(--well);border:1px solid var(--rule);border-radius:7px;
white-space:pre-wrap;position:relative;line-height:1.45;tab-size:4}
pre.command{user-select:all;-webkit-user-select:all;padding-right:64px}
pre button{position:absolute;top:5px;right:6px;font:600 .72rem system-ui,sans-serif;padding:3px 9px;border-radius:6px;
border:1px solid var(--rule);background:var(--card);color:var(--soft);cursor:pointer;user-select:none}
pre button:hover{color:var(--ink)}
pre .hit{display:block;background:var(--fail-b);margin:0 -12px;padding:0 12px}
ul.also{margin:.5rem 0 0;padding-left:1.1rem;color:var(--soft);font-size:.88rem}
.rows{display:grid;grid-template-columns:max-content max-content minmax(0,1fr);gap:4px 12px;align-items:baseline}
.rows b{font-weight:600}.rows .tag{margin:0;text-align:center}
table.grid{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
table.grid td{overflow-wrap:anywhere}table.grid td:first-child{min-width:7.5em}
table.grid th{text-align:left;white-space:nowrap;color:var(--soft);font-weight:600;padding:5px 10px 5px 0;
border-bottom:1px solid var(--rule);vertical-align:bottom}
table.grid td{padding:5px 10px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}
table.grid tr:last-child td{border-bottom:0}
details{margin:0 0 10px}summary{cursor:pointer;color:var(--blue);font-size:.92rem}
details[open]>summary{margin-bottom:.5rem}
figure{margin:0 0 12px}figcaption{color:var(--soft);font-size:.85rem;margin-top:4px}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:12px}
.plots figure{max-width:560px}
.legend{display:flex;flex-wrap:wrap;gap:3px 14px;color:var(--soft);font-size:.82rem;margin:.4rem 0}

svg{display:block;width:100%;height:auto}svg.matrix{max-width:350px}
.legend svg{display:inline-block;width:12px;height:12px;vertical-align:-1px;margin-right:5px}
.medium,.narrow{display:none}
footer{color:var(--soft);font-size:.85rem;padding-bottom:48px;margin-top:36px}
footer>div{border-top:1px solid var(--rule);padding-top:14px}
@media(max-width:1000px){.wide{display:none}.medium{display:block}}
@media(max-width:640px){
main,header.top,footer{padding-left:13px;padding-right:13px}
.medium{display:none}.narrow{display:block}
.verdict{padding:13px 15px}.card{padding:12px 13px}
.rows{grid-template-columns:max-content minmax(0,1fr)}.rows span.what{grid-column:1/-1;margin-bottom:6px}
dl.facts{grid-template-columns:fit-content(38%) minmax(0,1fr)}
table.grid thead{position:absolute;left:-9999px;top:0;width:1px;overflow:hidden}
table.grid,table.grid tbody,table.grid tr,table.grid td{display:block;width:auto}
table.grid tr{padding:6px 0;border-bottom:1px solid var(--rule)}
table.grid td{border:0;padding:1px 0}
table.grid td:not(:first-child)::before{content:attr(data-label) ": ";color:var(--soft)}
table.grid td:first-child{font-weight:600}table.grid td:empty{display:none}
}
"""

_DRAWINGS: Final = """
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",sans-serif;fill:var(--ink)}
svg text.soft{fill:var(--soft)}svg text.small{font-size:10.5px}svg text.strong{font-weight:700}
svg text.on{fill:var(--card);font-weight:600}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}
svg .box{fill:var(--card);stroke:var(--rule)}svg .well{fill:var(--well);stroke:none}
svg .tile{fill:var(--card);stroke:var(--faint);stroke-width:1.2}
svg .tile.ok{stroke:var(--ok)}svg .tile.fail{fill:var(--fail-b);stroke:var(--fail);stroke-width:2}
svg .tile.warn{fill:var(--warn-b);stroke:var(--warn);stroke-width:2}
svg .tile.hidden{stroke-dasharray:4 3;stroke:var(--faint)}
svg .nic{fill:var(--well);stroke:var(--faint)}
svg .nic.fail{fill:var(--fail-b);stroke:var(--fail)}
svg .nic.warn{fill:var(--warn-b);stroke:var(--warn)}
svg .nic.off{fill:none;stroke-dasharray:4 3}
svg .wire{stroke:var(--faint);stroke-width:1.2;fill:none}svg .wire.narrow-link{stroke:var(--warn);stroke-width:2.5}
svg .nvwire{stroke:var(--nv);fill:none}svg .switch{fill:var(--nv);stroke:none}
svg .c-nv{fill:var(--nv)}svg .c-near{fill:var(--near)}svg .c-mid{fill:var(--mid)}svg .c-far{fill:var(--far)}
svg .c-self{fill:var(--well)}svg .c-none{fill:var(--unknown)}
svg .p-rest,svg .p-recorded{fill:var(--rest)}svg .p-loader{fill:var(--loader)}svg .p-wait{fill:var(--wait)}
svg .p-optimizer{fill:var(--optimizer)}svg .p-saving{fill:var(--saving)}svg .p-idle{fill:var(--idle)}
svg .p-quiet{fill:var(--wait);opacity:.45}svg .mark{stroke:var(--fail);stroke-width:2.5;fill:none}
svg .axis{stroke:var(--rule);stroke-width:1;fill:none}svg .tick{stroke:var(--rule);stroke-width:1;stroke-dasharray:2 4}
svg .curve{fill:none;stroke-width:2}svg .dot{stroke:var(--card);stroke-width:1}
svg .s0{stroke:var(--blue)}svg .s1{stroke:var(--loader)}svg .s2{stroke:var(--wait)}svg .s3{stroke:var(--saving)}
svg .s4{stroke:var(--optimizer)}svg .s5{stroke:var(--nv)}svg .s6{stroke:var(--faint)}
svg .f0{fill:var(--blue)}svg .f1{fill:var(--loader)}svg .f2{fill:var(--wait)}svg .f3{fill:var(--saving)}
svg .f4{fill:var(--optimizer)}svg .f5{fill:var(--nv)}svg .f6{fill:var(--faint)}
"""

_PRINT: Final = """
@media print{
@page{margin:14mm}
body{font-size:10.5pt;background:#fff}
main,header.top,footer{max-width:none;padding:0}
nav,pre button{display:none}
.medium{display:block}.wide,.narrow{display:none}
.card,.verdict,figure,tr{break-inside:avoid}h2,h3{break-after:avoid}
summary{color:var(--soft)}
a{color:inherit}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""


def css() -> str:
    """Return the style sheet. A printed page is always light."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{_DARK}}}}}"
    return f":root{{color-scheme:light dark;{_LIGHT}}}{dark}{_PAGE}{_DRAWINGS}{_PRINT}"
