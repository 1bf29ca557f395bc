package machine

// readCPUID is the instruction CPUID: eax, ebx, ecx and edx.
func readCPUID(leaf, sub uint32) [4]uint32

// readXCR0 is the instruction XGETBV, which a processor has that reports OSXSAVE.
func readXCR0() uint32

// setFeatures sets what CPUID says.
func (m *Facts) setFeatures() {
	has, registers := readFeatures(readCPUID, readXCR0)
	m.Features, m.Registers = has.String(), registers
}
