//! Installing and leaving the module: `make run`, `make install`, the line that loads it, Kubernetes, an upgrade, and that docs/install.md
//! describes all of it correctly. `make -C packaging deb-test` tests the package and the image in their own Debian.

mod kubernetes;
mod leaving;
mod loading;
mod make_install;
mod make_run;
mod manifest;
mod own_server;
mod page;
mod upgrade;
