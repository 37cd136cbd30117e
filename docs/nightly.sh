#!/bin/sh
# Build tonight's keywords, prove the file against them, and put it in the place of the old one.
#
#     nightly.sh KEYWORDS FOLDER
#
# KEYWORDS is Parquet: a folder, a glob in quotes, or a URI. FOLDER/keywords.trie is what searches
# open, FOLDER/yesterday.trie the one before it, and FOLDER/log/TIME has what each command said, a
# JSON object each. Options of the commands are in the environment, as in TRIE_BUILD_MEMORY=13GiB.
#
# Exit codes are those of trie: 0 done; 1 a check said no; 2 bad input, or a fault of the machine;
# 130, 143 a signal. After any other code than 0, FOLDER/keywords.trie is unchanged.
set -eu

keywords=$1
folder=$2
live=$folder/keywords.trie
tonight=$folder/tonight.trie
log=$folder/log/$(date -u +%Y-%m-%dT%H-%M-%SZ)
export TRIE_BUILD_MAX_SHRINK="${TRIE_BUILD_MAX_SHRINK:-5%}"

# The lock is held by all that this script starts, for as long as it runs.
exec 9>"$folder/nightly.lock"
if ! flock --nonblock 9; then
    echo "nightly: another one runs in $folder" >&2
    exit 2
fi
trap 'rm -f "$tonight"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# trie COMMAND, its object to the log. One that fails is printed, too, and ends the job.
step() {
    trie "$@" --json >"$log/$1.json" || {
        code=$?
        cat "$log/$1.json" >&2
        exit "$code"
    }
}

# What is no command of trie, and fails: a fault of the machine.
must() {
    "$@" || exit 2
}

must mkdir -p "$log"
# --max-shrink compares with what is at the output, so the old file has that name for a while. The
# build writes beside it and renames: the name goes to the new file, and the old one is not touched.
must rm -f "$tonight"
if [ -e "$live" ]; then
    must ln "$live" "$tonight"
fi
step build "$keywords" -o "$tonight" --force
step verify "$tonight" --against "$keywords"
if [ -e "$live" ]; then
    step diff "$live" "$tonight"
    must ln -f "$live" "$folder/yesterday.trie"
fi
must mv -f "$tonight" "$live"
