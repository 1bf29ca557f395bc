package prices

import (
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/pricing"
)

// TestSizeName: names of Azure's lists are found in any case, with and without the prefix.
func TestSizeName(t *testing.T) {
	for _, want := range []string{
		"Standard_D2as_v5", "Standard_B2s", "Standard_A1", "Standard_A8m_v2", "Standard_D2_v2_Promo", "Standard_DS13-4_v2",
		"Standard_E4-2s_v5", "Standard_M128-32ms", "Standard_F2s_v2", "Standard_FX4mds", "Standard_HB120-16rs_v3", "Standard_GS5-8",
		"Standard_D2pds_v5", "Standard_NC24ads_A100_v4", "Standard_NC4as_T4_v3", "Standard_NV6ads_A10_v5", "Standard_ND96isr_MI300X_v5",
		"Standard_NG8ads_V620_v1", "Standard_NV4ads_V710_v5", "Standard_NCC40ads_H100_v5", "Standard_L8s_v3", "Standard_D16s_v10",
	} {
		for _, given := range []string{
			want, strings.ToLower(want), strings.ToUpper(want), strings.ToLower(strings.TrimPrefix(want, "Standard_")), " " + want + " ",
		} {
			if got := SizeName(given); got != want {
				t.Errorf("SizeName(%q) = %s, want %s", given, got, want)
			}
		}
	}
	// A part that does not follow the convention is not changed, right or wrong.
	for given, want := range map[string]string{
		"basic_a1": "Basic_A1", "dc96as_cc_v5": "Standard_DC96as_cc_v5", "Standard_nd96is_Flex_v5": "Standard_ND96is_Flex_v5",
		"odd": "Standard_odd", "": "",
	} {
		if got := SizeName(given); got != want {
			t.Errorf("SizeName(%q) = %s, want %s", given, got, want)
		}
	}
}

// TestSizesInAnotherCase: retail prices and placement scores are case-sensitive, and each
// size has all of its data under the name as Azure spells it.
func TestSizesInAnotherCase(t *testing.T) {
	server := &pricing.Server{Offers: market().Offers}
	r := ask(t, server, func(q *Query, _ *Options) {
		q.Sizes, q.Regions = []string{"standard_D2AS_V5", "d4S_v5"}, []string{"westeurope"}
	})
	for _, size := range []string{"Standard_D2as_v5", "Standard_D4s_v5"} {
		o := offer(t, r, size, "westeurope")
		if o.Spot == 0 || o.SpotUSD == 0 || o.Machine == nil || len(o.Placement) != 1 || o.Placement[0].Score != "High" || len(o.Problems) > 0 {
			t.Errorf("offer is %+v, want all of its data", o)
		}
	}
}
