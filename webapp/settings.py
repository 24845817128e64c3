"""Django settings, readable top to bottom. Everything comes from the environment, see `env`."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from webapp import env

CHECKOUT = Path(__file__).resolve().parent.parent
CARAVAN_HOME = Path(env.text("CARAVAN_HOME", str(CHECKOUT / ".caravan")))
CARAVAN_URL = env.text("CARAVAN_URL", "http://127.0.0.1:8000").rstrip("/")
CARAVAN_INGEST_URL = env.text("CARAVAN_INGEST_URL", "http://127.0.0.1:8001").rstrip("/")
CARAVAN_WEBHOOK_HOSTS = env.items("CARAVAN_WEBHOOK_HOSTS", "")  # may be private, or plain HTTP
CARAVAN_STORAGE = env.text("CARAVAN_STORAGE", str(CARAVAN_HOME / "storage"))
CARAVAN_RECIPES = CHECKOUT / "recipes"

# Security
DEBUG = env.boolean("CARAVAN_DEBUG")
SECRET_KEY = env.secret("CARAVAN_SECRET_KEY")
ALLOWED_HOSTS = env.items("CARAVAN_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
HAS_TLS = CARAVAN_URL.startswith("https://")
CSRF_TRUSTED_ORIGINS = [CARAVAN_URL]
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE = HAS_TLS
CSRF_COOKIE_SAMESITE = SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_NAME = "caravan_session"
CSRF_COOKIE_NAME = "caravan_csrf"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if HAS_TLS else 0
X_FRAME_OPTIONS = "DENY"
if env.boolean("CARAVAN_BEHIND_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

# Applications
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "channels",
    "csp",
    "django_htmx",
    "webapp.accounts",
    "webapp.experiments",
    "webapp.monitoring",
    "webapp.reviews",
    "webapp.sweeps",
]
MIDDLEWARE = [
    "webapp.middleware.request_id",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "webapp.rest.idempotency.store_answers",
    "webapp.pages.Refusals",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [CHECKOUT / "frontend" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webapp.pages.frame",
                "webapp.reviews.inbox_pages.frame",
            ],
            "builtins": ["webapp.templating"],
        },
    }
]
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 2**20
FILE_UPLOAD_MAX_MEMORY_SIZE = 8 * 2**20


# PostgreSQL, through a pool in each process
def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or len(parts.path) < 2:
        raise ImproperlyConfigured(
            "DATABASE_URL must look like postgresql://user@host:5432/name or "
            "postgresql://user@/name?host=/socket/folder"
        )
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", parts.hostname or ""),
        "PORT": str(options.pop("port", parts.port or "")),
        "OPTIONS": {
            **options,
            "pool": {
                "min_size": 1,
                "max_size": env.integer("CARAVAN_DB_POOL", 12),
                "timeout": 20,
            },
        },
    }


DATABASES = {"default": _database(env.text("DATABASE_URL"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Valkey: the Celery queue, the channel layer, and counters that may be lost
REDIS_URL = env.text("REDIS_URL")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "caravan"},
    }
}
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "caravan",
    }
}

# People
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_AGE = 14 * 24 * 3600
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]

# Languages and time
LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [CHECKOUT / "frontend" / "locale"]
LANGUAGE_COOKIE_NAME = "caravan_language"
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_SECURE = HAS_TLS
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

# Static files: ours and those of installed packages, nothing from outside
STATIC_URL = "/static/"
STATIC_ROOT = CARAVAN_HOME / "static"
STATICFILES_DIRS = [CHECKOUT / "frontend" / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "webapp.staticfiles.VendorFinder",
]
MESSAGE_TAGS = {10: "info", 20: "info", 25: "good", 30: "warn", 40: "bad"}  # notice-… in CSS
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # uploads go to `storage`
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "webapp.staticfiles.ManifestStorage"
    },
}
WHITENOISE_USE_FINDERS = DEBUG
WHITENOISE_AUTOREFRESH = DEBUG

# Logs: one JSON object a line, with the request's id
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "webapp.logs.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": env.text("CARAVAN_LOG_LEVEL", "INFO")},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.channels.server": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
    },
}
