"""The descriptor in torch: modules, sampling at LAFs, export."""

from kd_cv.extras import extra

extra("torch", "KDModule and KDFeature need torch", "torch")
