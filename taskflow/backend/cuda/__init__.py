"""GPUs through CuPy: the only folder that imports cupy, cuda and cudnn.

`device` has streams, events, memory and captured graphs; `cublas`, `cublaslt`, `cudnn` and `nccl` call libraries;
`kernels` compiles CUDA C; the `.cu` files hold the kernels of the runtime itself.
"""
