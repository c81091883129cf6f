"""Networks that Headrace defines or takes from torchvision."""
