"""The learning system. Knows no Django, no Celery, no HTTP server."""
