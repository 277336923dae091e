"""Training: bridge matching for GruM, denoising score matching for GDSS."""
