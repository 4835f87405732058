#include "textflag.h"

// The kernels of vector_amd64.go in AVX2. A vector has 64 lanes: 16 steps of four.

#define LANES 512

// MAX: Y0 = max(free, after), for signed 64-bit integers, which AVX2 has no instruction for.
#define MAX \
	VMOVDQU   (AX)(CX*1), Y0  \
	VMOVDQU   (BX)(CX*1), Y1  \
	VPCMPGTQ  Y0, Y1, Y2      \
	VBLENDVPD Y2, Y1, Y0, Y0

// STORE: free = Y0, done = Y0 + latency.
#define STORE \
	VMOVDQU Y0, (AX)(CX*1)           \
	VPADDQ  (SI)(CX*1), Y0, Y1       \
	VMOVDQU Y1, (DX)(CX*1)

// PRODUCT: to = from * factor, whose low and high words are in lanes of low and high. The product
// is within 63 bits.
#define PRODUCT(from, low, high, to, other, words) \
	VPSRLQ   $32, from, words      \
	VPMULUDQ from, low, to         \
	VPMULUDQ from, high, other     \
	VPMULUDQ words, low, words     \
	VPADDQ   words, other, other   \
	VPSLLQ   $32, other, other     \
	VPADDQ   other, to, to

// func servePlainAVX2(free, after, done, latency *vector, cost int64)
TEXT ·servePlainAVX2(SB), NOSPLIT, $0-40
	MOVQ free+0(FP), AX
	MOVQ after+8(FP), BX
	MOVQ done+16(FP), DX
	MOVQ latency+24(FP), SI
	VPBROADCASTQ cost+32(FP), Y8
	XORQ CX, CX
plain:
	MAX
	VPADDQ Y8, Y0, Y0
	STORE
	ADDQ $32, CX
	CMPQ CX, $LANES
	JB   plain
	VZEROUPPER
	RET

// func serveAVX2(free, after, done *vector, p *blockProfile, cost, units int64)
// A blockProfile begins with the vectors latency, perUnit and slowdown.
TEXT ·serveAVX2(SB), NOSPLIT, $0-48
	MOVQ free+0(FP), AX
	MOVQ after+8(FP), BX
	MOVQ done+16(FP), DX
	MOVQ p+24(FP), SI
	LEAQ LANES(SI), DI
	LEAQ (2*LANES)(SI), R8
	VPBROADCASTQ cost+32(FP), Y8
	VPSRLQ $32, Y8, Y9
	VPBROADCASTQ units+40(FP), Y10
	VPSRLQ $32, Y10, Y11
	MOVQ $4095, R9 // slowdownRound
	VMOVQ R9, X12
	VPBROADCASTQ X12, Y12
	MOVQ $255, R9 // perUnitRound
	VMOVQ R9, X13
	VPBROADCASTQ X13, Y13
	XORQ CX, CX
full:
	MAX
	VMOVDQU (R8)(CX*1), Y3
	PRODUCT(Y3, Y8, Y9, Y4, Y5, Y6)
	VPADDQ Y12, Y4, Y4
	VPSRLQ $12, Y4, Y4 // slowdownBits
	VPADDQ Y4, Y0, Y0
	VMOVDQU (DI)(CX*1), Y3
	PRODUCT(Y3, Y10, Y11, Y4, Y5, Y6)
	VPADDQ Y13, Y4, Y4
	VPSRLQ $8, Y4, Y4 // perUnitBits
	VPADDQ Y4, Y0, Y0
	STORE
	ADDQ $32, CX
	CMPQ CX, $LANES
	JB   full
	VZEROUPPER
	RET

// func raiseAVX2(to, from *vector)
TEXT ·raiseAVX2(SB), NOSPLIT, $0-16
	MOVQ to+0(FP), AX
	MOVQ from+8(FP), BX
	XORQ CX, CX
raise:
	MAX
	VMOVDQU Y0, (AX)(CX*1)
	ADDQ $32, CX
	CMPQ CX, $LANES
	JB   raise
	VZEROUPPER
	RET
