// Package plan ranks VM sizes and regions by what a useful hour on Spot VMs is expected
// to cost, and compares a deployment with what would be chosen now. It is pure: what
// Azure says comes from package prices, what evictions cost from the checkpoint policy
// that the workers use, so that there is one formula.
//
// Of each hour that is paid, evictions and saves take a share:
//
//	useful = 1 − C/(τ+C) − λ·(boot + notice) − λ·(τ/2 + C)
//
// where λ is the rate of evictions, C what a save takes, and τ the interval that the
// policy chooses for both. A useful hour costs the price divided by that.
package plan
