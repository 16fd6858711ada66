"""The programs of Gavel (Narayanan et al., OSDI 2020): blind to accelerator types, aware of them, space sharing."""
