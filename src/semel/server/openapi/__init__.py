"""The OpenAPI document: the values in which surfaces declare their operations, and the document made of them."""
