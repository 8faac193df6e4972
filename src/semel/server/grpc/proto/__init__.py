"""The description of the health service that every gRPC server has."""
