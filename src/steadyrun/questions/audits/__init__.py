"""The questions A…: what was seen happening in the loop and proves a cause. They are asked behind a fault as well."""
