"""The library on real data, next to the same computations in dense PyTorch: python -m torchpairwise.demo"""
