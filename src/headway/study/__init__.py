"""Many runs compared: layouts, kills, planted delays."""
