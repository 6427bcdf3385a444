// Package script writes what the script that decides on Redis is asked, and
// reads what it answers: groups of hits into keys and numbers, and numbers into
// decisions. The script itself is in lua/. It imports bucket alone and asks no
// network, so that it can be tested without one.
package script
