// Package lanes draws jobs on VMs over time: a lane for each VM, jobs as coloured bars, and
// marks for the ends of VMs. It computes no figure: the caller hands them in.
//
//	shared.html   colours, style and rows of every page with lanes, also of package replay
//	story         the input of the picture: VMs, jobs, runs, figures
//	layout        where the bars and the marks are
//	picture.svg   the picture of a story: the README's picture
//	story.html    a page with the picture, a row for each job, and the promises
package lanes
