package machine

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// # Features of a processor
//
// A program chooses instructions by CPUID when it starts, so it continues only where all that it
// may have found exist. Features are bits of CPUID and not the names in /proc/cpuinfo: kernels
// hide some, and programs ask the processor. Bits of the kernel alone are left out. Other
// bits count, also those without a name here: newer processors have them.
//
// Registers are those that XSAVE saves, with their places. They must be the same: programs keep such
// areas in frames of signals and of the dynamic linker, of the size that they found at their
// start. criu marks all registers of the new processor as in use, so a larger area would overwrite
// what follows. The tiles of AMX are an exception: they are not in use before a program asks for
// them, and criu leaves them out.

// Registers of CPUID.
const (
	eax = iota
	ebx
	ecx
	edx
	xcr0 // not of CPUID: the tiles, if the kernel has enabled them
)

// word is 32 features of processors. It names the bits from 0 as /proc/cpuinfo does: "-" is one
// that programs do not depend on, "." has no name, and so have bits after the last name.
type word struct {
	leaf, sub uint32
	register  int
	names     string
}

// words are the features in the order of their encoding. Another order takes another length.
var words = [...]word{
	{1, 0, edx, "fpu - - - tsc - - - cx8 - . sep - - - cmov - - - clflush . - - mmx fxsr sse sse2 - - - - -"},
	{1, 0, ecx, "pni pclmulqdq - - - - - - - ssse3 - - fma cx16 - - . - - sse4_1 sse4_2 - movbe popcnt - aes xsave osxsave avx f16c " +
		"rdrand -"},
	{0x8000_0001, 0, edx, "- - - - - - - - - - . syscall - - - - - - . - - . mmxext - - - - rdtscp . - 3dnowext 3dnow"},
	{0x8000_0001, 0, ecx, "lahf_lm - - - - abm sse4a misalignsse 3dnowprefetch - - xop - - . lwp fma4 - . - . tbm - - - . - - - mwaitx -"},
	{7, 0, ebx, "fsgsbase - - bmi1 hle avx2 fdp_excptn_only - bmi2 erms - rtm - zero_fcs_fds mpx - avx512f avx512dq rdseed adx - " +
		"avx512ifma . clflushopt clwb - avx512pf avx512er avx512cd sha_ni avx512bw avx512vl"},
	{7, 0, ecx, "prefetchwt1 avx512vbmi - pku ospke waitpkg avx512_vbmi2 user_shstk gfni vaes vpclmulqdq avx512_vnni avx512_bitalg - " +
		"avx512_vpopcntdq . la57 - - - - - rdpid - - cldemote . movdiri movdir64b enqcmd - -"},
	{7, 0, edx, ". - avx512_4vnniw avx512_4fmaps fsrm uintr . . avx512_vp2intersect - - - . - serialize - tsxldtrk . - - - . " +
		"amx_bf16 avx512_fp16 amx_tile amx_int8 - - - - - -"},
	{7, 1, eax, "sha512 sm3 sm4 rao_int avx_vnni avx512_bf16 - cmpccxadd - . fzrm fsrs fsrc . . . . - - - - amx_fp16 - avx_ifma . . " +
		"lam - . . - movrs"},
	{7, 1, edx, ". . . . avx_vnni_int8 avx_ne_convert . . amx_complex . avx_vnni_int16 . . . prefetchi user_msr . . - avx10 . apx . . -"},
	{0xd, 1, eax, "xsaveopt xsavec xgetbv1 - -"},
	{0x1e, 1, eax, ""}, // AMX
	{0x24, 0, ebx, ""}, // AVX10; of its versions 1 to 3 the last has the bits of both others
	{0x8000_0008, 0, ebx, "clzero - xsaveerptr - rdpru . - . mcommit - . . - - - - - - - - - - . - - - - - - - - -"},
	{0x8000_0021, 0, eax, "- - - - . - - - - - . . . - - . - - - . . . - . - - - - - - - -"},
	{0, 0, xcr0, ""},
}

// features are the bits of words.
type features [len(words)]uint32

// tiles are the registers of AMX in xcr0.
const tiles = 1<<17 | 1<<18

// readFeatures returns the features of a processor and its saved registers: their set, and the
// place of each behind the first two.
func readFeatures(cpuid func(leaf, sub uint32) [4]uint32, readXCR0 func() uint32) (has features, registers string) {
	const extended, osxsave, state = 0x8000_0000, 1 << 27, 0xd
	var enabled uint32
	if cpuid(1, 0)[ecx]&osxsave != 0 {
		enabled = readXCR0()
	}
	for i, w := range words {
		switch {
		case w.register == xcr0:
			has[i] = enabled & tiles
		case w.leaf <= cpuid(w.leaf&extended, 0)[eax]: // above, Intel answers for another leaf
			has[i] = cpuid(w.leaf, w.sub)[w.register]
		}
		for bit, name := range strings.Fields(w.names) {
			if name == "-" {
				has[i] &^= 1 << bit
			}
		}
	}
	places := []string{}
	for i := uint32(2); i < 32; i++ {
		if enabled&^tiles&(1<<i) != 0 {
			places = append(places, fmt.Sprint(cpuid(state, i)[ebx]))
		}
	}
	return has, fmt.Sprintf("%x:%s", enabled&^tiles, strings.Join(places, ","))
}

// String is the encoding of features, of the same length for all processors.
func (f features) String() string {
	out, _ := binary.Append(nil, binary.BigEndian, f)
	return base64.RawURLEncoding.EncodeToString(out)
}

// parseFeatures reads [features.String].
func parseFeatures(text string) (f features, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) != binary.Size(f) {
		return f, false
	}
	_, err = binary.Decode(data, binary.BigEndian, &f)
	return f, err == nil
}

// lacking says which features a processor lacks, empty for none.
func lacking(needed, here string) string {
	if needed == here { // also of a processor whose features are not compared
		return ""
	}
	want, known := parseFeatures(needed)
	has, readable := parseFeatures(here)
	if !known || !readable {
		return "the features of its processor are recorded in another form"
	}
	var names []string
	for i, w := range words {
		named := strings.Fields(w.names)
		for bit := range 32 {
			switch {
			case want[i]&^has[i]&(1<<bit) == 0:
			case bit < len(named) && len(named[bit]) > 1:
				names = append(names, named[bit])
			case w.register == xcr0:
				names = append(names, fmt.Sprintf("bit %d of XCR0", bit))
			default:
				register := [...]string{"eax", "ebx", "ecx", "edx"}[w.register]
				names = append(names, fmt.Sprintf("bit %d of CPUID %x.%d.%s", bit, w.leaf, w.sub, register))
			}
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > maxNamed:
		names = append(names[:maxNamed:maxNamed], fmt.Sprintf("%d more features", len(names)-maxNamed))
	}
	return "it needs " + strings.Join(names, ", ") + ", which this processor lacks"
}
