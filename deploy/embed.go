// Package deploy embeds the example limits, for a program without files beside it.
package deploy

import "embed"

// Limits holds the example limits files, in the folder limits.
//
//go:embed limits/*.yaml
var Limits embed.FS
