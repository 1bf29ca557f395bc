// Package plan ranks VM sizes and regions by the expected cost of a useful hour on Spot
// VMs, and compares a deployment with the best choice now. It is pure: Azure's data comes
// from package prices, the cost of evictions from the checkpoint policy that the workers
// use, so that there is one formula.
//
// Of each hour that is paid, evictions and saves take a share:
//
//	useful = 1 − C/(τ+C) − λ·(boot + notice) − λ·(τ/2 + C)
//
// where λ is the rate of evictions, C the time of a save, and τ the interval that the
// policy chooses for both. A useful hour costs the price divided by that.
package plan
