package costs

import "github.com/spotworker/spotworker/internal/cli"

// Texts are the help texts that are too long for the tags of flags.
var Texts = cli.Texts{
	"about_cost_since": "Only jobs whose record was written last at or after this time: a date as in 2026-11-01 (UTC), a time " +
		"in RFC 3339, or how long ago, as in 36h or 7d.",
	"about_cost_slots": "Jobs that a VM does at a time, all of its workers together. Without it, what the heartbeats of live " +
		"workers say.",

	"about_os": "Operating system whose prices are shown: ${enum}.",
	"about_currency": "Currency of the retail prices, a code of three letters. Price history and maximum prices are always " +
		"in USD.",
	"about_subscription": "Subscription whose sizes, quota and placement scores are asked for. Without it they are left out.",
	"about_sign_in":      "Sign in to Azure. With --no-sign-in only retail prices are asked for.",

	"about_plan_sizes": "VM sizes to choose from. With --watch: the sizes that are deployed.",
	"about_plan_watch": "Compare what is deployed, the sizes with --max-price in the first --region, with now. Ends with 2 if something " +
		"should be changed, 0 if not, 1 if that cannot be found out.",

	"about_rates_currency": "Currency of the prices, a code of three letters. Without it that of --prices, or USD.",
	"about_rates_prices":   "File with what spotctl prices, or spotctl plan, printed with -o json. Plan knows no regular prices.",
}
