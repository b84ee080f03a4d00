"""Networks as features and head: loading, cutting, running and training them."""
