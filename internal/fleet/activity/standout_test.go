package activity

import "testing"

func TestStandsOut(t *testing.T) {
	for name, row := range map[string]struct {
		here, elsewhere Runs
		want            bool
	}{
		"all fail here, none elsewhere":                      {Runs{0, 8}, Runs{40, 0}, true},
		"every second one":                                   {Runs{12, 12}, Runs{100, 2}, true},
		"every third one, many runs":                         {Runs{40, 20}, Runs{200, 4}, true},
		"every second one, few runs":                         {Runs{4, 4}, Runs{100, 0}, false},
		"two elsewhere are no measure":                       {Runs{5, 5}, Runs{2, 0}, false},
		"nothing ran elsewhere":                              {Runs{10, 30}, Runs{}, false},
		"the kind fails everywhere":                          {Runs{10, 10}, Runs{50, 50}, false},
		"fails everywhere, more so here":                     {Runs{5, 15}, Runs{60, 40}, false},
		"a kind that fails seldom":                           {Runs{90, 10}, Runs{1000, 5}, false},
		"nothing fails":                                      {Runs{100, 0}, Runs{100, 0}, false},
		"nothing ran":                                        {},
		"one failure in a row of bad inputs on few machines": {Runs{5, 5}, Runs{16, 4}, false},
	} {
		if got := StandsOut(row.here, row.elsewhere); got != row.want {
			t.Errorf("%s: StandsOut(%+v, %+v) = %t, want %t", name, row.here, row.elsewhere, got, row.want)
		}
	}
}

// TestStandsOutSeldomByChance: of pairs that fail equally often, hardly any stands out.
func TestStandsOutSeldomByChance(t *testing.T) {
	const tries = 20_000
	state := uint64(1)
	failed := func(runs int, share float64) (r Runs) {
		for range runs {
			state = state*6364136223846793005 + 1442695040888963407
			if float64(state>>11)/(1<<53) < share {
				r.Failed++
			} else {
				r.Done++
			}
		}
		return r
	}
	for _, share := range []float64{0.05, 0.2, 0.5} {
		out := 0
		for range tries {
			if StandsOut(failed(32, share), failed(100, share)) {
				out++
			}
		}
		if out > tries/1000 {
			t.Errorf("at %.2f, %d of %d pairs stand out by chance", share, out, tries)
		}
		t.Logf("at %.2f, %d of %d pairs stand out by chance", share, out, tries)
	}
}
