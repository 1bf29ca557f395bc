#!/bin/sh
# Puts a job of Snakemake, a script, and prints the id. Snakemake repeats what fails (--restart-times).
exec producer put --retries 0 -- sh "$1"
