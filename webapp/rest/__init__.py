"""What the API routers share: problem+json, authentication, paging, idempotency, entity tags."""
