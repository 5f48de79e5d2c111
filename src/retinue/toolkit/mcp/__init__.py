"""The client of the Model Context Protocol: servers, their tools, resources and prompts."""
