complete -c kedis_top -l addr -d 'Address of the server: host:port, [IPv6]:port' -r
complete -c kedis_top -l user -d 'ACL user' -r
complete -c kedis_top -l password -d 'Password' -r
complete -c kedis_top -l tls_ca -d 'File, or directory of files, with the authorities that certify the server; without it those of the system, and then the name in the certificate must be that of the host' -r -F
complete -c kedis_top -l tls_cert -d 'File with the certificate that is shown to the server' -r -F
complete -c kedis_top -l tls_key -d 'File with the private key of that certificate' -r -F
complete -c kedis_top -l db -d 'Look at this DB only' -r
complete -c kedis_top -l prefix -d 'Look only at keys that begin with this' -r
complete -c kedis_top -l separator -d 'What ends a part of a key' -r
complete -c kedis_top -l depth -d 'Prefixes end at the first so many separators' -r
complete -c kedis_top -l top -d 'How many keys and prefixes are shown' -r
complete -c kedis_top -l samples -d 'Rows of a collection that are read to estimate its bytes; 0: all' -r
complete -c kedis_top -l rate -d 'Read so many rows a second at the most; 0: as many as possible' -r
complete -c kedis_top -l hot -d 'Collect for so long which keys are used; 0: not at all' -r
complete -c kedis_top -l hot_sample -d 'Look at one command in so many for that; without it at about 1,000 commands a second' -r
complete -c kedis_top -l watch -d 'Show it again and again, with so many seconds in between, or as many as it took' -r
complete -c kedis_top -l tls -d 'Speak TLS'
complete -c kedis_top -l last -d 'Show what the last scan has found, instead of a new one'
complete -c kedis_top -l json -d 'Print all as one JSON document'
complete -c kedis_top -l version -d 'Print version'
complete -c kedis_top -s h -l help -d 'Print help'
