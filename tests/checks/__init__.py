"""One file a family of checks: tables of facts and answers."""

import pytest

pytest.register_assert_rewrite("tests.checks.facts")
