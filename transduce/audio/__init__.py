"""Sound: recordings read from files, resampled, and turned into log-mel features. Knows no text and no models."""
