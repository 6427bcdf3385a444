// Package config says which limit applies: it reads limits files into
// immutable Rules, which match descriptors, and loads them again when the
// files change; or domains that come in messages. It imports bucket, glob, reload,
// spelling and yamlfile, and no store.
package config
