// Package programs runs programs of others that save by themselves, unchanged: GROMACS, John
// the Ripper and LAMMPS, from Debian's packages. Each is a kind of a few settings, is evicted
// again and again, and must have the result of an undisturbed run. So do tools that start commands:
// Snakemake, make, xargs and GNU parallel, as in examples/workflows.
package programs
