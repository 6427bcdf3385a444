// Package reload keeps what files say in force, and replaces it when they
// change: all or nothing, with the last good ones as long as there is an error.
// It imports nothing of the project, and does not know what the files say.
package reload
