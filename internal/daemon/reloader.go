package daemon

import "context"

// reloader is a reload.Live: of limits, or of another file.
type reloader interface {
	Reload() error
	Watch(ctx context.Context)
}
