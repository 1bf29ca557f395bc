#include "textflag.h"

// func readCPUID(leaf, sub uint32) [4]uint32
TEXT ·readCPUID(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL sub+4(FP), CX
	CPUID
	MOVL AX, ret_0+8(FP)
	MOVL BX, ret_1+12(FP)
	MOVL CX, ret_2+16(FP)
	MOVL DX, ret_3+20(FP)
	RET

// func readXCR0() uint32
TEXT ·readXCR0(SB), NOSPLIT, $0-4
	XORL CX, CX
	XGETBV
	MOVL AX, ret+0(FP)
	RET
