package dial

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// completionWait is how long a shell's user waits at most for what a daemon knows.
const completionWait = 500 * time.Millisecond

// AskQuietly asks the daemon of the command line on behalf of completion. It says nothing
// if there is none or if it does not answer in time.
func AskQuietly(cmd *cobra.Command, load Loader, ask func(context.Context, adminv1.AdminServiceClient)) {
	to := ToAdmin(load)
	for name, value := range map[string]*string{
		adminPort.flag: &to.address, "token-file": &to.tokenFile,
		"tls-ca": &to.ca, "tls-cert": &to.cert, "tls-key": &to.key, "tls-server-name": &to.serverName,
	} {
		if f := cmd.Flags().Lookup(name); f != nil {
			*value = f.Value.String()
		}
	}
	if f := cmd.Flags().Lookup("tls"); f != nil {
		to.tls = f.Value.String() == "true"
	}
	conn, err := to.Dial()
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	ask(ctx, adminv1.NewAdminServiceClient(conn))
}
