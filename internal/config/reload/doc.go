// Package reload keeps the content of files in force and replaces it when they change:
// all or nothing, with the last good content as long as there is an error. It imports
// nothing of the project and does not know the format of the files. Content that does not
// come from files can be put in their place.
package reload
