package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// Samples, not measurements: flags that VMs of Azure are known to show in /proc/cpuinfo.
const (
	flagsOfAll = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx " +
		"pdpe1gb rdtscp lm constant_tsc rep_good nopl cpuid pni pclmulqdq ssse3 fma cx16 pcid sse4_1 sse4_2 movbe popcnt aes " +
		"xsave avx f16c rdrand hypervisor lahf_lm abm 3dnowprefetch fsgsbase bmi1 avx2 smep bmi2 erms invpcid rdseed adx smap " +
		"clflushopt xsaveopt xsavec xgetbv1 xsaves "
	flagsOf8272CL = flagsOfAll + "ss xtopology hle rtm avx512f avx512dq avx512cd avx512bw avx512vl md_clear "
	flagsOf8370C  = flagsOf8272CL + "vmx tsc_adjust clwb sha_ni avx512vbmi umip avx512_vbmi2 gfni vaes vpclmulqdq avx512_vnni " +
		"avx512_bitalg avx512_vpopcntdq la57 rdpid fsrm arch_capabilities "
	flagsOf8573C = flagsOf8370C + "avx_vnni avx512_bf16 waitpkg cldemote movdiri movdir64b serialize tsxldtrk avx512_fp16 " +
		"amx_bf16 amx_tile amx_int8 "
	flagsOf7763 = flagsOfAll + "mmxext fxsr_opt cmp_legacy svm cr8_legacy sse4a misalignsse osvw topoext clwb sha_ni user_shstk " +
		"clzero xsaveerptr rdpru npt umip vaes vpclmulqdq rdpid fsrm "
	flagsOf9V74 = flagsOf7763 + "avx512f avx512dq avx512ifma avx512cd avx512bw avx512vl avx512_bf16 avx512vbmi avx512_vbmi2 gfni " +
		"avx512_vnni avx512_bitalg avx512_vpopcntdq "
)

// featuresOf are the features that have the names of flags.
func featuresOf(flags string) (f features) {
	names := strings.Fields(flags)
	for i, w := range words {
		for bit, name := range strings.Fields(w.names) {
			if slices.Contains(names, name) {
				f[i] |= 1 << bit
			}
		}
	}
	return f
}

// TestProcessors: a snapshot of one processor continues on others of its vendor with the same
// registers and at least its features. Heartbeats and the check of needs agree.
func TestProcessors(t *testing.T) {
	of := func(cpu, vendor, registers, flags string) Facts {
		m := Facts{Kernel: "6.12.57", Arch: "amd64", CPU: cpu, Vendor: vendor, Registers: registers, CRIU: "4.1.1", PageSize: 4096}
		if flags != "" {
			m.Features = featuresOf(flags).String()
		}
		return m
	}
	const intel, amd = "GenuineIntel", "AuthenticAMD"
	all := map[string]Facts{
		"8272CL": of("8272CL", intel, "e7:576,1088,1152,1664", flagsOf8272CL),
		"8370C":  of("8370C", intel, "e7:576,1088,1152,1664", flagsOf8370C),
		"8573C":  of("8573C", intel, "e7:576,1088,1152,1664", flagsOf8573C),
		"7763":   of("7763", amd, "7:576", flagsOf7763),
		"9V74":   of("9V74", amd, "e7:576,832,896,1408", flagsOf9V74),
		"Altra":  of("0xd0c", "0x41 0xd0c", "1b2c", ""),
		"Cobalt": of("0xd49", "0x41 0xd49", "3d4e", ""),
	}
	for pair, want := range map[string]string{
		"8272CL 8370C": "", "8272CL 8573C": "", "8370C 8573C": "", "Altra Altra": "", "9V74 9V74": "",
		"8573C 8370C":  "it needs waitpkg, cldemote, movdiri, movdir64b, serialize, 7 more features, which this processor lacks",
		"8370C 8272CL": "it needs clwb, sha_ni, avx512vbmi, ",
		"7763 9V74":    "the layout of its registers was 7:576, here it is e7:576,832,896,1408",
		"9V74 7763":    "it needs avx512f, ",
		"7763 8370C":   "the processor's vendor was AuthenticAMD, here it is GenuineIntel",
		"Altra Cobalt": "the processor's vendor was 0x41 0xd0c, here it is 0x41 0xd49",
	} {
		from, to, _ := strings.Cut(pair, " ")
		needs := Needs(all[from], nil)
		err := all[to].CheckNeeds(needs, &Hashes{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pair, err, want)
		}
		if got := presence.OfferMeets(all[to].Offer(), needs); got != (want == "") {
			t.Errorf("%s: the offer meets the needs: %t", pair, got)
		}
	}
	if lacks := lacking(all["7763"].Features, all["9V74"].Features); lacks != "" { // registers alone keep them apart
		t.Errorf("9V74 lacks features of 7763: %s", lacks)
	}
	if n := len(all["9V74"].Offer()); n > 100 {
		t.Errorf("an offer has %d bytes, want at most 100", n)
	}
	for _, other := range []string{"", "AAAA", "?"} {
		m := all["8573C"]
		m.Features = other
		if err := all["8370C"].Compare(m); err == nil || !strings.Contains(err.Error(), "in another form") {
			t.Errorf("a processor with features %q is compared: %v", other, err)
		}
	}
}

// TestReadFeatures leaves out what programs do not depend on, counts bits without a name, and
// does not ask a processor for what it does not have.
func TestReadFeatures(t *testing.T) {
	var enabled uint32 = 0x6_0007 // with tiles
	asked := func() uint32 { return enabled }
	leaves := map[[2]uint32][4]uint32{
		{0, 0}: {7}, {1, 0}: {0, 0, 1<<27 | 1<<31, 1 << 20}, {7, 0}: {1, 1 << 16}, {7, 1}: {1 << 30}, {0xd, 2}: {256, 576},
		{0x1e, 1}: {1}, {0x8000_0000, 0}: {0x8000_0001}, {0x8000_0001, 0}: {0, 0, 1}, {0x8000_0008, 0}: {0, 1},
	}
	cpuid := func(leaf, sub uint32) [4]uint32 { return leaves[[2]uint32{leaf, sub}] }
	got, registers := readFeatures(cpuid, asked)
	want := featuresOf("osxsave avx512f lahf_lm")
	want[0] |= 1 << 20
	want[len(want)-1] = tiles
	if got != want || registers != "7:576" {
		t.Errorf("features = %x, registers %s, want %x and 7:576", got, registers, want)
	}
	if lacks := lacking(got.String(), featuresOf("osxsave lahf_lm").String()); lacks !=
		"it needs bit 20 of CPUID 1.0.edx, avx512f, bit 17 of XCR0, bit 18 of XCR0, which this processor lacks" {
		t.Errorf("lacking = %q", lacks)
	}
	leaves[[2]uint32{1, 0}] = [4]uint32{}
	asked = func() uint32 { panic("asked without OSXSAVE") }
	if _, registers := readFeatures(cpuid, asked); registers != "0:" {
		t.Errorf("registers without OSXSAVE = %q", registers)
	}
}
