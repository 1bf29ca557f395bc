#!/bin/sh
# Prints what Snakemake calls the status of a job. A job without a record waits for its first worker; a
# storage that does not answer says nothing about it.
case $(spotctl --output json job "$1" 2>/dev/null | grep -o '"status":"[a-z]*"' | head -n 1) in
*done*) echo success ;;
*poison* | *cancelled*) echo failed ;;
*) echo running ;;
esac
