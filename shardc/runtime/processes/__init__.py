"""A step over several processes: values between them, and what watches that all go on."""
