"""The variables of commands: a few inherited ones, and none that changes what programs do."""

from __future__ import annotations

import pytest

from retinue.core.errors import ToolFailed
from retinue.toolkit.processes.environment import PATH, base_environment, check_variables, is_settable_variable

REFUSED_NAMES = """
LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT ld_preload DYLD_INSERT_LIBRARIES GCONV_PATH BASH_ENV ENV BASHOPTS BASH_FUNC_ls
GIT_SSH GIT_SSH_COMMAND GIT_CONFIG_COUNT GIT_PAGER PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONWARNINGS NODE_OPTIONS
NODE_PATH npm_config_registry NPM_CONFIG_SCRIPT_SHELL PERL5LIB PERL5OPT RUBYOPT RUBYLIB GEM_HOME BUNDLE_GEMFILE
http_proxy HTTPS_PROXY ALL_PROXY NO_PROXY ftp_proxy GOPROXY GOFLAGS PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL
UV_DEFAULT_INDEX IFS PATH CDPATH MANPATH CLASSPATH PROMPT_COMMAND SHELLOPTS PS1 PS4 SHELL HOME TMPDIR ZDOTDIR
JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAVEN_OPTS LUA_INIT LUA_PATH PHPRC PHP_INI_SCAN_DIR RUSTC_WRAPPER
CARGO_HOME EDITOR VISUAL PAGER MANPAGER BROWSER GIT_EDITOR LESSOPEN LESS SSL_CERT_FILE SSLKEYLOGFILE CURL_HOME
REQUESTS_CA_BUNDLE OPENSSL_CONF TAR_OPTIONS GREP_OPTIONS RSYNC_RSH MAKEFLAGS CC CFLAGS LDFLAGS TERMINFO HOSTALIASES
LOCALDOMAIN RES_OPTIONS XDG_CONFIG_HOME DBUS_SESSION_BUS_ADDRESS KUBECONFIG DOCKER_HOST SSH_ASKPASS SSH_AUTH_SOCK
ERL_FLAGS ELIXIR_ERL_OPTIONS PYTEST_ADDOPTS PYTEST_PLUGINS GCC_EXEC_PREFIX APT_CONFIG NIX_CONFIG BC_ENV_ARGS MPLBACKEND
MAGICK_CONFIGURE_PATH VK_ICD_FILENAMES GDK_PIXBUF_MODULE_FILE TCL_LIBRARY MAILCAPS OCAMLRUNPARAM CONDA_EXE
VIMINIT EXINIT RETINUE_HOME OPENCLAW_HOME AWS_CONFIG_FILE GTK_MODULES ASAN_OPTIONS MALLOC_CHECK_ GLOBIGNORE _
"""
ALLOWED_NAMES = """
GREETING VK_TOKEN MAILGUN_API_KEY FEATURE_FLAGS
API_KEY OPENAI_API_KEY GH_TOKEN GOOGLE_API_KEY AWS_ACCESS_KEY_ID CI DEBUG LANG NODE MY_VAR x
"""


@pytest.mark.parametrize("name", REFUSED_NAMES.split())
def test_a_variable_that_changes_what_programs_do_is_refused(name: str) -> None:
    assert not is_settable_variable(name)
    with pytest.raises(ToolFailed, match="may not be set"):
        check_variables({name: "x"})


@pytest.mark.parametrize("name", ALLOWED_NAMES.split())
def test_an_ordinary_variable_may_be_set(name: str) -> None:
    assert is_settable_variable(name)
    check_variables({name: "x"})


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("A=B", "x"), ("1X", "x"), ("X Y", "x"), ("X\n", "x"), ("X", "\0")]
)
def test_what_is_no_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(ToolFailed, match="is not a valid environment variable"):
        check_variables({name: value})


def test_only_a_few_names_are_inherited() -> None:
    harmless = {"LANG": "C", "LC_ALL": "C", "HOME": "/h", "TERM": "x"}
    inherited = harmless | {"TOKEN": "s", "PATH": "/evil", "LD_PRELOAD": "x"}
    assert base_environment(inherited) == harmless | {"PATH": PATH, "RETINUE_SHELL": "exec"}
    assert base_environment({}, ("/opt/a", "/opt/b"))["PATH"] == f"/opt/a:/opt/b:{PATH}"
