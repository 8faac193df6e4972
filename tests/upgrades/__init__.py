"""Data folders of every released schema, and the test that the present code opens, migrates and checks them."""
