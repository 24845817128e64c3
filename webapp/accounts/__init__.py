"""Teams, projects, roles, API tokens, invitations, audit log."""
