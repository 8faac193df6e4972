"""What tests of every surface share: servers and clusters in processes of their own, kills, proxies and faults."""
