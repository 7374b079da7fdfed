"""Webhooks: endpoints, what is delivered to them, and how one delivery is sent."""
