package cli

import (
	"bytes"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
)

// wordsByPackage is the line of cobra's script for bash that needs the package
// bash-completion.
const wordsByPackage = `    _get_comp_words_by_ref "$@" cur prev words cword
`

// wordsByBash does the same without it. Bash splits words at = and : too; pieces without
// a blank between them are one word.
const wordsByBash = `    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i line=$COMP_LINE blanks
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blanks=${line%%[![:blank:]]*}
        line=${line#"$blanks"}
        if [[ $i -eq 0 || -n $blanks ]]; then
            words+=("${COMP_WORDS[i]}")
        else
            words[${#words[@]}-1]+=${COMP_WORDS[i]}
        fi
        line=${line#"${COMP_WORDS[i]}"}
    done
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    prev=
    if ((cword > 0)); then
        prev=${words[cword - 1]}
    fi
`

// ownCompletionCommands changes cobra's: the bash script needs no package, an unknown
// shell is an error, and help fits a terminal.
func ownCompletionCommands(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // created above
	}
	completion.Short = "Print what has a shell complete commands and flags"
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cmdline.NoCommand(cmd, args[0])
		}
		return cmd.Help()
	}
	for _, shell := range completion.Commands() {
		shell.Args = cmdline.NoArguments
		shell.Long = strings.NewReplacer(
			"\t", "  ", "You will need to start a new shell for this setup to take effect.", "It counts in the next shell.",
			" > $(brew --prefix)", " \\\n    > $(brew --prefix)",
			"This script depends on the 'bash-completion' package.\nIf it is not installed already, you can install it via your OS's package manager.\n\n", "",
		).Replace(shell.Long)
		if shell.Name() == "bash" {
			shell.RunE = printBashScript
		}
	}
}

// printBashScript prints a script for completion in any bash.
func printBashScript(cmd *cobra.Command, _ []string) error {
	bare, err := cmd.Flags().GetBool("no-descriptions")
	if err != nil {
		return err
	}
	var script bytes.Buffer
	if err := cmd.Root().GenBashCompletionV2(&script, !bare); err != nil {
		return err
	}
	text := strings.Replace(script.String(), wordsByPackage, wordsByBash, 1)
	if text == script.String() {
		return errors.New("the script for bash is not the one that is known here")
	}
	_, err = cmd.OutOrStdout().Write([]byte(text))
	return err
}
