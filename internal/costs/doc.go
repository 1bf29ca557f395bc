// Package costs is the folder of what Spot VMs cost and how many of them a load needs,
// which spotctl prices, plan and size print:
//
//	prices   what Azure says: retail prices, price history, eviction rates, quota
//	plan     which VM sizes and regions to choose, by the cost of a useful hour
//	sizing   how many VMs, queues and storage accounts a stream of jobs needs
//
// Imports point one way: sizing → plan → prices. What jobs have cost is elsewhere: package
// ledger counts it in their records, and spotctl cost sums it.
package costs
