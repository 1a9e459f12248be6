"""What a person sees in the terminal while something runs, and when it is done."""
