// The only macros of the library.
#pragma once

// TP_HD: a function of numbers, compiled for the host and for the device. Always inlined: the kernel files are compiled once per
// instruction set, and an out-of-line copy made for AVX-512 must never be the one that a baseline processor runs.
#if defined(__CUDACC__)
#define TP_HD __host__ __device__ __forceinline__
#else
#define TP_HD __attribute__((always_inline)) inline
#endif

// TP_ISA names the instruction set of a kernel file; the build sets it, and everything in cpu/ lives in a namespace of that name.
#if !defined(TP_ISA)
#define TP_ISA baseline
#endif

#if defined(__AVX512F__)
#define TP_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TP_VECTOR_BYTES 32
#else
#define TP_VECTOR_BYTES 16
#endif
