# Everything of Caravan but its databases; docker-compose.yml says what runs from it.
FROM python:3.11-slim

RUN useradd --uid 10001 --create-home caravan \
    && install --directory --owner caravan --mode 0700 \
        /var/lib/caravan /var/lib/caravan/storage /var/lib/caravan/secrets /var/lib/caravan/static

COPY requirements /app/requirements
RUN pip install --no-cache-dir --only-binary=:all: \
        -r /app/requirements/base.txt -c /app/requirements/lock.txt

COPY engine /app/engine
COPY webapp /app/webapp
COPY workers /app/workers
COPY client /app/client
COPY frontend /app/frontend
COPY recipes /app/recipes

USER caravan
WORKDIR /home/caravan
ENV PYTHONPATH=/app:/app/client
