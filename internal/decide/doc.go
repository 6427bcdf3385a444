// Package decide turns the descriptors of a request into hits, asks the store
// for all of them at once, and tells each descriptor what it got. It knows no
// protocol: endpoints read requests into a Call, and write what came of it. It
// imports the rules, the assignments and the store's interface.
package decide
